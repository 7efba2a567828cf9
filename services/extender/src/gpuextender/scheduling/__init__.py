"""The calls of kube-scheduler: filter, prioritize, bind and preempt, gangs, and the requeue."""
