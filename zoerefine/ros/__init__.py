"""ROS 2: bags without a ROS installation, and pictures and depth in messages."""
