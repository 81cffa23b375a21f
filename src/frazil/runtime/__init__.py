"""What Frazil stands on and does not write itself: Java, jars, the Spark session, the embedded broker."""
