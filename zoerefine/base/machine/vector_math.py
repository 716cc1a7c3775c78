"""Make torch's vector functions (log, exp) ready; to be imported before several threads compute.

The MKL inside torch chooses the code for this processor at the first call of a vector function.
If two threads make their first calls at the same moment, one of them can get a low-accuracy
function for that call: a relative error of 1.5e-4 in place of 1e-7. It happened in 3 to 7 of 10,000
processes with torch 2.13, and never in 40,000 processes after one call in a single thread. Python
imports a module only once and makes other threads wait, so importing this file is that call.
"""

import torch

torch.exp(torch.zeros(64))
