"""The cluster and the kubelet of a DRA driver."""
