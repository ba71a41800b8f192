"""What a turn may use and is told, frozen when it begins."""
