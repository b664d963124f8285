# World Size in a container, standalone or as a JupyterHub's single-user image (docs/platforms.md):
#   docker build -t worldsize . && docker run --rm -p 127.0.0.1:8888:8888 worldsize
# For NVIDIA GPUs: docker build --build-arg TORCH=pip …, docker run --gpus all …
FROM debian:12-slim
ARG TORCH=
# your hub's release
ARG JUPYTERHUB=6

ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 LANG=C.UTF-8
RUN apt-get update -q \
 && apt-get install -q -y --no-install-recommends bubblewrap ca-certificates libseccomp2 make python3 python3-venv tini \
 && rm -rf /var/lib/apt/lists/*

# .dockerignore admits only a student's bundle: no answers, no tests
COPY . /opt/worldsize
RUN make -C /opt/worldsize setup VENV=/opt/venv TORCH=${TORCH} \
 && /opt/venv/bin/pip install -q -c /opt/worldsize/constraints.txt "jupyterhub~=${JUPYTERHUB}.0" \
 && /opt/venv/bin/python -m compileall -q /opt/worldsize/worldsize

# a hub expects this name and number, and mounts its volume at the user's home
RUN useradd --create-home --uid 1000 --shell /bin/bash jovyan
ENV PATH=/opt/venv/bin:$PATH
USER jovyan
EXPOSE 8888
ENTRYPOINT ["tini", "--", "sh", "/opt/worldsize/docker/start.sh"]
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
