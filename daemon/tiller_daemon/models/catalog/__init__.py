"""What is known about models: context windows, prices, and what servers list."""
