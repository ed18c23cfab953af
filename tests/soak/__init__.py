"""A daemon under random commits, kills, full disks, lost files and clock jumps, and what it must not leak."""
