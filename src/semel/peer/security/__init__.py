"""How a caller proves who it is and checks whom it calls: TLS, and SASL's mechanisms without any I/O."""
