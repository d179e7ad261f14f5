"""What is wrong with brokers before links run there, decided from what was seen of them."""
