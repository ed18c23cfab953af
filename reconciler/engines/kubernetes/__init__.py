"""The engine ``kubernetes``: a GVC is a namespace, and a workload a Deployment, StatefulSet or CronJob."""
