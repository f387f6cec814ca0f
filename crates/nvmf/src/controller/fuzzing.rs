//! A harness that reads bytes as a sequence of actions upon one controller.
