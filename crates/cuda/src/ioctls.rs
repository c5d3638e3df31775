//! Names of ioctls.
