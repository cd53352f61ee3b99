"""What nodes and clients count: each metric is declared once, counted where the work is done, and read on demand."""
