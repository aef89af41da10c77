# syntax=docker/dockerfile:1
# linux/amd64 and linux/arm64: docker buildx build --platform linux/amd64,linux/arm64 -t headrace .
FROM python:3.13-slim-bookworm AS build
# Everything that the configuration can turn on. `forecast` is two thirds of the size (scipy,
# pandas): --build-arg EXTRAS=kubernetes,otel,dns,kv-events leaves it out.
ARG EXTRAS=kubernetes,otel,dns,kv-events,forecast
# The compiler's version follows the base image
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY csrc csrc
COPY src src
RUN python -m venv /opt/headrace \
    && /opt/headrace/bin/pip install --no-cache-dir ".[$EXTRAS]" \
    && /opt/headrace/bin/pip uninstall -y pip \
    && find /opt/headrace \( -name __pycache__ -o -path '*/site-packages/*/tests' \) -prune -exec rm -rf {} +

FROM python:3.13-slim-bookworm
LABEL org.opencontainers.image.title="headrace" \
      org.opencontainers.image.description="LLM inference gateway for vLLM and SGLang replicas" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/headrace /opt/headrace
# HOME: the user is in no passwd, and the Kubernetes client asks for its home when it is imported
ENV PATH=/opt/headrace/bin:$PATH \
    HOME=/ \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# A number, so that Kubernetes can see that it is not root
USER 65532:65532
EXPOSE 30000 29000
# The data port may be moved with HEADRACE_SERVER__PORT; flags that move it, and TLS on it, need
# --no-healthcheck or one of their own
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('HEADRACE_SERVER__PORT', '30000') + '/health', timeout=2)"]
# The supervisor is made to be PID 1: it forwards signals to its processes and reaps them
STOPSIGNAL SIGTERM
ENTRYPOINT ["headrace"]
CMD ["serve"]
