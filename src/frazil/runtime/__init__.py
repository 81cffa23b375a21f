"""The platform: Java, jars, the Spark session and the embedded Kafka broker."""
