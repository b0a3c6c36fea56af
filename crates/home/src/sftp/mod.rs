//! SFTP.
