"""What the page asks for: one file for each subject, from a query to a document."""
