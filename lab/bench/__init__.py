"""`make bench`: what the program costs against the barest way to do the same, on the lab.

Absolute times of the lab are noise. Whatever is compared runs alternately in one run, and what counts is the
ratio or the difference of medians, and bytes and numbers of connections.
"""
