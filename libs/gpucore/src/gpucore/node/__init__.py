"""What a node decides: which card a device id means, whom kubelet asks for, what is handed out."""
