# The runner in a container; methods run beside it, in the engine whose socket it is given.
#   make container [BASE=image by digest]        see docs/container.md
# BASE has Python 3.11, or the version that the wheels were fetched for; nothing else is asked of it,
# no shell and no pip. Without BASE, make uses the base of the method images, built here. Where a
# registry is reached, name a public one by the digest that you looked up: BASE=python@sha256:<digest>
ARG BASE
FROM ${BASE} AS packages
USER 0:0
WORKDIR /build
COPY tools/container_packages.py requirements/run.lock /build/
COPY .cache/container/wheels/ /build/wheels/
# Offline: every wheel is held against the hashes of the lock before it is unpacked.
RUN ["python3", "container_packages.py", "run.lock", "wheels", "/packages"]

FROM ${BASE}
USER 0:0
COPY --from=packages /packages/ /opt/sealbench/packages/
COPY schemas/ /opt/sealbench/schemas/
COPY images/ /opt/sealbench/images/
COPY manifests/ /opt/sealbench/manifests/
COPY runner/ /opt/sealbench/runner/
ENV PYTHONPATH=/opt/sealbench:/opt/sealbench/packages PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.title="sealbench" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nobody in particular: at run time it is the caller (--user), who must be able to write the work
# folder and to use the engine's socket (--group-add).
USER 65534:65534
ENTRYPOINT ["python3", "-m", "runner.cli"]
CMD ["--help"]
