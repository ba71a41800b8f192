"""Facts about models: context windows, prices, and the models that servers list."""
