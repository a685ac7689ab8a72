# halogend for NVIDIA accelerators. From the root of a clone:
#
#     docker build -f deploy/docker/cuda.Dockerfile -t halogend:cuda .
#
# PyTorch brings CUDA's libraries; the driver's come from the node, mounted by NVIDIA's container runtime. Where the
# default package index has no CUDA build of PyTorch, name one that has: --build-arg PIP_EXTRA_INDEX_URL=...
FROM python:3.11-slim-bookworm AS build
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/halogend
WORKDIR /src
COPY . .
RUN /opt/halogend/bin/pip install -c constraints.txt '.[engine,gpu]'

FROM python:3.11-slim-bookworm
# tini reaps the orphans of a process that died: PID 1 has to. Triton builds a small module for each kernel's launch,
# with a C compiler and Python's headers, which the base image has.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev tini \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/halogend /run/halogend \
    && install -d -o 10001 -g 10001 -m 0755 /var/cache/halogend
COPY --from=build /opt/halogend /opt/halogend
# The only folders that are written to, besides /tmp: with a read-only root these and /tmp are mounts. Not set here is
# NVIDIA_VISIBLE_DEVICES: in an image it would give devices to pods that asked for none.
ENV PATH=/opt/halogend/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    STATE_DIRECTORY=/var/lib/halogend \
    RUNTIME_DIRECTORY=/run/halogend \
    CACHE_DIRECTORY=/var/cache/halogend
USER 10001:10001
EXPOSE 8000 8443
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/halogend/bin/halogend"]
CMD ["run"]
