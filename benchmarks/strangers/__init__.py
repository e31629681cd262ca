"""A fleet that shares a provider's limit with strangers: its clients, their rivals, and the provider."""
