//! An NFSv3 client in user space.
