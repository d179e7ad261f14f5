# The agent without Spark is what `docker build .` makes; `--target report` adds Spark and Java. `--target traffic` starts
# the sample traffic of docker-compose.yml instead. All have aio-pika: it is small, and `check --deliver` needs it.
# It needs BuildKit, which builders before Docker 23 use with DOCKER_BUILDKIT=1.
# Behind a mirror: `--secret id=pip,src=pip.conf` gives pip a configuration that no layer keeps.
# By tag: each build has Debian's security fixes of its day, which a digest written down here would keep out until
# somebody changes it. Where images are to be the same bit by bit: `--build-arg BASE=docker.io/library/debian@sha256:…`.
# Nothing in a layer depends on when it was made: no logs and caches, and compiled Python that doesn't look at times, so that
# with a builder that sets those of all files (`buildah build --timestamp`) the same base gives the same bytes, which start fast.
# Without one of Debian's indexes, that of security fixes among them, there is no image.
ARG BASE=docker.io/library/debian:bookworm-slim
FROM ${BASE} AS python
RUN apt-get update -o APT::Update::Error-Mode=any \
    && apt-get install --yes --no-install-recommends python3 ca-certificates \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
    && PYTHONHASHSEED=0 python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3*

FROM python AS build
RUN apt-get update -o APT::Update::Error-Mode=any \
    && apt-get install --yes --no-install-recommends python3-venv python3-pip \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY locks locks
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONHASHSEED=0
# Only files with a locked hash are installed, build tools included: build isolation would install those unchecked.
# The environment has no pip: nothing is installed where the agent runs. The agent itself comes last: all else stays cached.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv --without-pip /opt/federation-agent \
    && python3 -m pip --python /opt/federation-agent/bin/python install --require-hashes --only-binary :all: --requirement locks/traffic.lock \
    && python3 -m venv /opt/build \
    && /opt/build/bin/python -m pip install --require-hashes --requirement locks/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
RUN /opt/build/bin/python -m pip wheel --no-build-isolation --no-deps --wheel-dir /wheels . \
    && python3 -m pip --python /opt/federation-agent/bin/python install --no-index --no-deps /wheels/*.whl \
    && python3 -m compileall -q -f --invalidation-mode unchecked-hash /opt/federation-agent/lib

# Spark has a script in Python, which pip would compile with the time of this build.
FROM build AS build-report
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/build/bin/python -m pip wheel --no-build-isolation --use-pep517 --require-hashes --wheel-dir /wheels --requirement locks/report.lock \
    && python3 -m pip --python /opt/federation-agent/bin/python install --no-compile --no-index --no-deps /wheels/*.whl \
    && python3 -m compileall -q -f --invalidation-mode unchecked-hash /opt/federation-agent/lib

FROM python AS base
# The only writable directory, for status-export: a volume mounted there belongs to the agent.
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin agent \
    && chage --lastday -1 agent \
    && rm -f /etc/*- \
    && install --directory --owner 10001 --group 10001 /var/lib/federation-agent
ENV PATH=/opt/federation-agent/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
EXPOSE 9419
# Numbers, so that an orchestrator can verify that it is not root.
USER 10001:10001
ENTRYPOINT ["federation-agent"]
CMD ["run", "-c", "/etc/federation-agent/agent.yml"]

# When Java is installed it makes a keystore of authorities, with dates, and an archive of classes that holds for files of one
# time only. The report needs neither: it connects to nothing, and starts a little later.
FROM base AS report
USER root
RUN apt-get update -o APT::Update::Error-Mode=any \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache /tmp/* \
        /usr/lib/jvm/*/lib/server/classes*.jsa /etc/ssl/certs/java/cacerts
COPY --from=build-report /opt/federation-agent /opt/federation-agent
USER 10001:10001
CMD ["--help"]

FROM base AS traffic
COPY --from=build /opt/federation-agent /opt/federation-agent
ENTRYPOINT ["python"]
CMD ["/traffic.py"]

FROM base AS agent
COPY --from=build /opt/federation-agent /opt/federation-agent
# Where HTTP listens is in the configuration.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["federation-agent", "alive"]
