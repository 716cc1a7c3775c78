# A GPU image: torch with CUDA and Torch-TensorRT. The same two commands work in it:
#   docker build -t zoerefine . && docker run --rm --gpus all zoerefine make demo
FROM nvidia/cuda:13.0.1-base-ubuntu24.04

RUN apt-get update \
 && apt-get install --yes --no-install-recommends git make python3 python3-venv python3-pip \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/zoerefine
COPY . .
# A run belongs to a commit: an image built from an archive gets one of its own.
RUN git config --global --add safe.directory /opt/zoerefine \
 && (git rev-parse HEAD >/dev/null 2>&1 || (git init --quiet && git add --all \
     && git -c user.name=image -c user.email=image@localhost commit --quiet -m "Built from an archive")) \
 && make install \
 && .venv/bin/pip install --no-cache-dir --constraint requirements.lock "torch-tensorrt==2.13.0"

CMD ["make", "demo"]
