"""The command line: one file a command. The only code that prints or exits."""
