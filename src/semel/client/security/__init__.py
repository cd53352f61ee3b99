"""How the client proves who it is and checks who the broker is: TLS, and SASL's mechanisms without any I/O."""
