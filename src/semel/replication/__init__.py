"""A partition as its leader sees it: appends, the high watermark, and those who wait for it."""
