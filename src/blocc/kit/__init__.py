"""What every application shares: certificates in rows, documents, files and their verification."""
