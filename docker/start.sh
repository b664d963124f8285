#!/bin/sh
# Gives the user's home the labs that it does not have yet, and then becomes the command that the container was asked for:
# JupyterLab, or a hub's jupyterhub-singleuser. What a student has changed is never written over.
set -eu
mkdir -p "$HOME/worldsize"
cp -Rn /opt/worldsize/labs "$HOME/worldsize/"
cd "$HOME/worldsize"
exec "$@"
