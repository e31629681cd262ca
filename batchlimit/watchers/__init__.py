"""What looks at the machine, and says when to back off."""
