"""The receivers of messages: what each of them takes, and how it is sent there."""
