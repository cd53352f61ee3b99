"""The node's half of security: access rules, logins and certificates, as far as they need no node."""
