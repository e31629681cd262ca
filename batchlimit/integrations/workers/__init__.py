"""What all task queues share: what a task is charged to, and when a refused one comes back."""
