"""What every engine that runs workloads needs: specifications, environments, references of images, and routes."""
