"""The control plane: discovery, scraping, health, admin."""
