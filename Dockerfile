# Two images. With a GPU, all that zoerefine does, tests included:
#
#   docker build --tag zoerefine .
#   docker run --rm --gpus all --volume zoerefine-runs:/opt/zoerefine/runs zoerefine
#   docker run --rm --gpus all zoerefine make test
#
# The volume keeps the runs. To copy them to ./runs:
#
#   docker run --rm --user root --volume zoerefine-runs:/from --volume "$PWD":/to zoerefine \
#     cp -r /from /to/runs
#
# On a CPU, inference alone with `torchscript` bundles, in an image of 1 GB (0.3 GB compressed):
#
#   docker build --target inference --tag zoerefine-inference .
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD":/work zoerefine-inference \
#     refiner.ts --trust --rgb RGB --depth ZOE --out OUT

# torch brings its CUDA libraries along, and the container toolkit adds the driver: no CUDA image is
# needed. Debian 12 has the Python version that the tests ran with.
FROM debian:12-slim AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 zoerefine

FROM base AS inference-packages
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /source
COPY requirements.lock ./
# torch for CPUs is a small part of torch with CUDA. Its headers, programs and tests are not needed.
RUN pip install --constraint requirements.lock \
      --extra-index-url https://download.pytorch.org/whl/cpu \
      av numpy opencv-python-headless pillow setuptools simplejpeg tqdm torch==2.13.0+cpu \
 && rm -rf /opt/venv/lib/python3*/site-packages/torch/include \
      /opt/venv/lib/python3*/site-packages/torch/bin \
      /opt/venv/lib/python3*/site-packages/torch/test
COPY pyproject.toml README.md LICENSE ./
COPY zoerefine zoerefine
RUN pip install --no-deps --no-build-isolation .

FROM base AS inference
COPY --from=inference-packages /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
USER 1000
WORKDIR /work
ENTRYPOINT ["zoerefine", "infer"]

FROM base AS full
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
# `aoti` engines for GPUs are compiled with CUDA's headers: those that torch's packages bring along,
# nvidia-cuda-crt and nvidia-cuda-cccl.
ENV CUDA_HOME=/opt/zoerefine/.venv/lib/python3.11/site-packages/nvidia/cu13
# Compilers for torch.compile, `aoti` engines and the C++ example; a browser, PostgreSQL and Slurm for tests.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      chromium chromium-driver cmake g++ gcc git git-lfs make munge npm postgresql python3-dev \
      slurm-client slurmctld slurmd texlive-latex-recommended \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir /opt/zoerefine \
 && chown zoerefine:zoerefine /opt/zoerefine
USER 1000
WORKDIR /opt/zoerefine
# Pinned packages come before the sources: an edit of the sources keeps these layers.
COPY --chown=1000:1000 requirements*.lock ./
RUN python3 -m venv .venv \
 && .venv/bin/pip install --requirement requirements.lock \
 && .venv/bin/pip install --constraint requirements.lock torch-tensorrt==2.13.0 \
      nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85
RUN for list in requirements-extras.lock requirements-engines.lock requirements-docs.lock \
      requirements-trackers.lock requirements-archive.lock; do \
      .venv/bin/pip install --constraint requirements.lock --requirement "$list" || exit 1; \
    done
COPY --chown=1000:1000 . .
# A run belongs to a commit: an image built from an archive gets one of its own. BESIDE: folders for
# tests of what a GPU's libraries do without a GPU stay out.
# hadolint ignore=DL3016
RUN (git rev-parse HEAD >/dev/null 2>&1 \
     || (git init --quiet && git add --all && git -c user.name=image \
         -c user.email=image@localhost commit --quiet --message "Built from an archive")) \
 && make install .venv/.extras-installed BESIDE= \
 && npm install --silent --no-package-lock --prefix tests/browser
VOLUME /opt/zoerefine/runs
CMD ["make", "demo"]
