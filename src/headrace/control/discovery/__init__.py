"""Where replicas come from: each source gives a whole list, and the lists are merged by URL."""
