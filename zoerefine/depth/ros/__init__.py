"""ROS 2: bags without a ROS installation, and pictures and depth in messages."""

# What other packages import from here; the rest is this package's own.
OPEN = ("bag_files", "bag_topics", "refine_bag")
