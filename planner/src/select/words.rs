//! Words as they are compared: of names and sentences, without endings.

