"""The depths in metres that limits are made of, some of them defaults of config keys."""

NEAREST_M = 1e-3  # the true depths that metrics use are between these two
FARTHEST_M = 10.0  # DATA.FARTHEST_M
MOST_FARTHEST_M = 255.0  # 16-bit depth files, 256 units a metre, reach just above
TYPICAL_M = 2.45960311115695  # MODEL.TYPICAL_DEPTH_M: exp(0.9), indoors
