# halogend for processors. From the root of a clone:
#
#     docker build -f deploy/docker/cpu.Dockerfile -t halogend:cpu --build-arg PIP_EXTRA_INDEX_URL=... .
#
# PIP_EXTRA_INDEX_URL names the package index that has PyTorch's builds for the CPU; without it pip takes what the
# default index has, which may be the CUDA build: the image works then, and is several GB larger.
FROM python:3.11-slim-bookworm AS build
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/halogend
WORKDIR /src
COPY . .
RUN /opt/halogend/bin/pip install -c constraints.txt '.[engine]'

FROM python:3.11-slim-bookworm
# tini reaps the orphans of a process that died: PID 1 has to.
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/halogend /run/halogend \
    && install -d -o 10001 -g 10001 -m 0755 /var/cache/halogend
COPY --from=build /opt/halogend /opt/halogend
# The only folders that are written to, besides /tmp: with a read-only root these and /tmp are mounts.
ENV PATH=/opt/halogend/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    STATE_DIRECTORY=/var/lib/halogend \
    RUNTIME_DIRECTORY=/run/halogend \
    CACHE_DIRECTORY=/var/cache/halogend
USER 10001:10001
EXPOSE 8000 8443
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/halogend/bin/halogend"]
CMD ["run"]
