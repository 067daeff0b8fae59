"""Documents on their way in: files, folders, tables and iterables."""
