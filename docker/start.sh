#!/bin/sh
# Copies missing labs into the user's home, then runs the container's command: JupyterLab, or a hub's jupyterhub-singleuser.
# Never overwrites a student's changes.
set -eu
mkdir -p "$HOME/worldsize"
cp -Rn /opt/worldsize/labs "$HOME/worldsize/"
cd "$HOME/worldsize"
exec "$@"
