"""What every engine that runs workloads needs: specification, template, environment, mounts and routes."""
