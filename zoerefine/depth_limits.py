"""Depths that are limits or typical, metres: the defaults of config keys, and what is fixed."""

NEAREST_M = 1e-3  # true depth that training and metrics use is above this
MOST_FARTHEST_M = 255.0  # 16-bit depth files, 256 units a metre, reach just above
TYPICAL_M = 2.45960311115695  # exp(0.9): the mean log depth of indoor scenes is 0.9
