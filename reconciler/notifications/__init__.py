"""What people are told of outcomes: messages, the channels that deliver them, and the outbox between both."""
