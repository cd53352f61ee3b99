"""Transactions: their states, the decisions on them, and the markers that end them."""
